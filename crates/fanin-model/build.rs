//! Makes the protocol's messages and their descriptions from proto/inference.proto, in process: no compiler of the system is needed.

use std::path::Path;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/inference.proto");
    let set = protox::compile(["inference.proto"], ["proto"])?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("inference.binpb"), set.encode_to_vec())?;
    prost_build::Config::new().bytes(["."]).compile_fds(set)?;
    Ok(())
}
