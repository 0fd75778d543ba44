use std::process::ExitCode;

/// malloc and free are a quarter of the instructions that Pingora spends on a request with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // With transparent huge pages memory grows by 2 MiB where 64 KiB are wanted, and the allocator asks for them: half as much
    // again would be resident, and what copies may take not be kept to. They would make no request cheaper: of sixteen pairs of
    // runs the median took as much processor time either way. A kernel that refuses costs only that.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    derbent::cli::run()
}
