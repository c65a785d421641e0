//go:build !linux

package kubelet

import "syscall"

// dieWithParent does nothing where there is no such thing: after a kill -9 of this process, its pods' must be ended
// by hand.
func dieWithParent(*syscall.SysProcAttr) {}
