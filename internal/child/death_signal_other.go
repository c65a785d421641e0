//go:build !linux

package child

import "syscall"

// dieWithParent does nothing where there is no such thing: after a kill -9 of this process, its children must be
// ended by hand.
func dieWithParent(*syscall.SysProcAttr) {}
