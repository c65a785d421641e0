package slurm

import (
	"strconv"
	"time"
)

// version is one of slurmrestd's OpenAPI plugins. What old ones answer otherwise, [number] and [words] read in both
// forms; what they want otherwise, its methods say. A change of an array is answered by old ones with an error without
// a number, made or not.
type version struct {
	name  string
	slash string // at the end of the paths of lists
	old   bool
}

// versions are those that are known, the best first. Slurm 24.11 and later have one of the first four, 22.05 the last.
var versions = []version{
	{"v0.0.45", "/", false},
	{"v0.0.44", "/", false},
	{"v0.0.43", "/", false},
	{"v0.0.42", "/", false},
	{"v0.0.38", "", true},
}

// begin returns a BeginTime as it is sent. Old versions want Slurm's own form of Unix seconds, which needs no time
// zone; numbers are refused as no time, though their document asks for them.
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

// env returns the environment of a job.
func (v *version) env(path string) any {
	if v.old {
		return map[string]string{"PATH": path}
	}
	return []string{"PATH=" + path}
}
