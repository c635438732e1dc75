fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "../../../proto"; // of Waggle
    println!("cargo::rerun-if-changed={proto}");
    let files = protox::compile(["waggle/v1/dispatch_service.proto"], [proto])?;
    Ok(tonic_prost_build::configure().build_server(false).compile_fds(files)?)
}
