package slurm

import (
	"strconv"
	"time"
)

// version is an OpenAPI plugin of slurmrestd. The types [number] and [words] decode the responses of all versions,
// and the methods of version encode requests. Old versions respond to a change of an array with an error without a
// number, even if it succeeds.
type version struct {
	name  string
	slash string // suffix of the paths of lists
	old   bool
}

// versions are the supported versions, the latest first. Slurm 24.11 and later support at least one of the first
// four, and Slurm 22.05 supports the last one.
var versions = []version{
	{"v0.0.45", "/", false},
	{"v0.0.44", "/", false},
	{"v0.0.43", "/", false},
	{"v0.0.42", "/", false},
	{"v0.0.38", "", true},
}

// begin encodes a BeginTime. Old versions require Slurm's format for Unix seconds, which does not depend on a time
// zone. They reject numbers, although their specification requires them.
func (v *version) begin(t time.Time) any {
	if v.old {
		return "uts" + strconv.FormatInt(t.Unix(), 10)
	}
	return v.amount(t.Unix())
}

func (v *version) amount(n int64) any {
	if v.old {
		return n
	}
	return map[string]any{"set": true, "infinite": false, "number": n}
}

// env encodes the environment of a job.
func (v *version) env(path string) any {
	if v.old {
		return map[string]string{"PATH": path}
	}
	return []string{"PATH=" + path}
}
