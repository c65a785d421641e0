//go:build !linux

package kit

import (
	"os/exec"
	"time"
)

func endWithParent(*exec.Cmd) {}

// LoopShare is not measured here: times are judged always.
func LoopShare(time.Duration) float64 { return 1 }
