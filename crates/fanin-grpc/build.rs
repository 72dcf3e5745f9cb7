//! Makes the services' messages and their descriptions from proto/, in process: no compiler of the system is needed.

use std::path::Path;

use prost::Message;

/// By the paths that gRPC gives them.
const FILES: [&str; 3] =
    ["grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto", "grpc/reflection/v1alpha/reflection.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(FILES, ["proto"])?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("services.binpb"), set.encode_to_vec())?;
    prost_build::Config::new().bytes(["."]).compile_fds(set)?;
    Ok(())
}
