//! Arguments in, exit status out; nothing else.

fn main() -> std::process::ExitCode {
    svcmap::cli::main()
}
