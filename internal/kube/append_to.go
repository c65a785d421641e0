package kube

import "os"

// AppendTo opens a file for appending. The name - means standard output. Recorded data covers all workloads and
// nodes, so the file is only readable by its owner.
func AppendTo(name string) (*os.File, error) {
	if name == "-" {
		return os.Stdout, nil
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}
