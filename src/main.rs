use std::process::ExitCode;

/// malloc and free are a quarter of the instructions that Pingora spends on a request with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    derbent::cli::run()
}
