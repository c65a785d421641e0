package slurm

import (
	"strconv"
	"time"
)

// version is one of slurmrestd's OpenAPI plugins, and what it wants otherwise than others. What it answers otherwise,
// [number] and [words] read in both forms.
type version struct {
	name  string
	slash string              // at the end of the paths of lists
	begin func(time.Time) any // a BeginTime, as it is sent
	mute  bool                // a change of an array is answered by an error without a number, made or not
}

// versions are those that are known, the best first. Slurm 24.11 and later have one of the first four, 22.05 the last.
var versions = []version{
	{"v0.0.45", "/", beginNumber, false},
	{"v0.0.44", "/", beginNumber, false},
	{"v0.0.43", "/", beginNumber, false},
	{"v0.0.42", "/", beginNumber, false},
	{"v0.0.38", "", beginText, true},
}

func beginNumber(t time.Time) any {
	return map[string]any{"set": true, "infinite": false, "number": t.Unix()}
}

// beginText is Slurm's own form of Unix seconds, which needs no time zone. Numbers are refused as no time, though the
// document of that version asks for them.
func beginText(t time.Time) any { return "uts" + strconv.FormatInt(t.Unix(), 10) }
