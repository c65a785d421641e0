package child

import "syscall"

// dieWithParent makes the kernel kill the child when the parent exits for any reason.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
