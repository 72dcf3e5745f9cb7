//! The values of the file as text: durations, sizes, environment variables, names, origins, secrets.

pub(crate) mod duration;
pub(crate) mod env;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod origin;
pub(crate) mod polynomial;
pub(crate) mod secret;
pub(crate) mod serialize;
pub(crate) mod size;
