package kube

import "os"

// AppendTo opens a file that lines are appended to, as flags name it: - is standard output. What is recorded tells of
// all work and all nodes, so only its owner may read the file.
func AppendTo(name string) (*os.File, error) {
	if name == "-" {
		return os.Stdout, nil
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}
