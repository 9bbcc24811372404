"""What torch.compile made and ran: calls of compiled code, its kernels, and the phases of the compiler."""
