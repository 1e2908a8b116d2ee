"""The processor this process runs on: LLVM for kernels, a thread pool, OpenBLAS and LAPACK as claims."""
