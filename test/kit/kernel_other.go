//go:build !linux

package kit

import (
	"os/exec"
	"time"
)

func endWithParent(*exec.Cmd) {}

// loopShare is not measured here: times are judged always.
func loopShare(time.Duration) float64 { return 1 }
