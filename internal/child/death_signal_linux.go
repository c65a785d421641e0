package child

import "syscall"

// dieWithParent lets a process end with this one, however that ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
