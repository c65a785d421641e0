//go:build !(linux && (amd64 || arm64))

package nvml

import (
	"errors"
	"io"
	"time"
)

// Serve fails: NVIDIA's driver is for Linux on amd64 and arm64.
func Serve(io.Writer, string, time.Duration) error {
	return errors.New("there is no driver of NVIDIA's for this architecture")
}
