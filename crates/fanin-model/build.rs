//! Makes the protocol's messages from proto/inference.proto, in process: no compiler of the system is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/inference.proto");
    let set = protox::compile(["inference.proto"], ["proto"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(set)?;
    Ok(())
}
