//! The standard services of gRPC, for every port that serves gRPC: health and server reflection. This crate has their messages,
//! their descriptions, and what reflection answers. It knows neither connections nor what is served.

#[allow(missing_docs, clippy::all, unused_qualifications, reason = "generated from the .proto")]
pub mod health {
    //! Messages of `grpc.health.v1`.
    include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
}

#[allow(missing_docs, clippy::all, unused_qualifications, reason = "generated from the .proto")]
pub mod reflection {
    //! Messages of `grpc.reflection.v1`. Those of `v1alpha` are the same on the wire.
    include!(concat!(env!("OUT_DIR"), "/grpc.reflection.v1.rs"));
}

mod conversation;
pub mod fuzzing;
mod reflector;

pub use conversation::{Conversation, MAX_CONVERSATION, Refused};
pub use reflector::Reflector;

/// The descriptions of the standard services: a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.binpb"));

/// The health service.
pub const HEALTH: &str = "grpc.health.v1.Health";

/// The reflection services, newest first.
pub const REFLECTION: [&str; 2] = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// The only method of the reflection services.
pub const REFLECTION_METHOD: &str = "ServerReflectionInfo";
