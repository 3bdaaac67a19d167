//! Compiles the `.proto` files without `protoc` and writes the descriptor set that gRPC reflection serves.

use std::error::Error;
use std::path::PathBuf;

const FOLDER: &str = "proto";
const FILES: [&str; 4] = ["externalgrpc.proto", "expander.proto", "probe.proto", "supplier.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={FOLDER}");

    let mut compiler = protox::Compiler::new([FOLDER])?;
    // Comments become rustdoc, and reflection clients show them to operators.
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("stoker_descriptor.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .codec_path("crate::codec::Bounded")
        // Pods and nodes stay slices of the request they came in.
        .bytes(".")
        // One message, one encoding: the same answer has the same bytes.
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
