//go:build !linux

package child

import "syscall"

// dieWithParent is a no-op on systems without a parent-death signal. If this process is killed, its children must
// be stopped manually.
func dieWithParent(*syscall.SysProcAttr) {}
