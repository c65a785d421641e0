package host

import (
	"bytes"
	"math"
	"time"
)

// The parsers in this file are hand-written, because they are called for each container each second. They require
// the newline after a number, so that a partially read number is rejected.

// digits parses the decimal number at the start of text, and returns the remaining text.
func digits(text []byte) (value uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && text[i]-'0' <= 9; i++ {
		d := uint64(text[i] - '0')
		if value > (math.MaxUint64-d)/10 {
			return 0, nil, false
		}
		value = value*10 + d
	}
	return value, text[i:], i > 0
}

// field returns the value of the line "name number" in a flat keyed file.
func field(text []byte, name string) (uint64, bool) {
	for len(text) > 0 {
		if len(text) > len(name) && string(text[:len(name)]) == name && text[len(name)] == ' ' {
			value, rest, ok := digits(text[len(name)+1:])
			return value, ok && len(rest) > 0 && rest[0] == '\n'
		}
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return 0, false
		}
		text = text[end+1:]
	}
	return 0, false
}

// times returns n·unit, or false if it overflows.
func times(n uint64, unit time.Duration) (time.Duration, bool) {
	if n > math.MaxInt64/uint64(unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// parseCPUStat parses cpu.stat of a group of version 2.
func parseCPUStat(text []byte) (time.Duration, bool) {
	usec, ok := field(text, "usage_usec")
	value, fits := times(usec, time.Microsecond)
	return value, ok && fits
}

// parseRootCPUStat parses cpu.stat of the root group of version 2. It uses user_usec and system_usec, because
// usage_usec includes stolen time before Linux 6.14.
func parseRootCPUStat(text []byte) (time.Duration, bool) {
	user, hasUser := field(text, "user_usec")
	sys, hasSystem := field(text, "system_usec")
	if !hasUser || !hasSystem {
		return parseCPUStat(text)
	}
	if user > math.MaxInt64 || sys > math.MaxInt64 {
		return 0, false
	}
	return times(user+sys, time.Microsecond)
}

// parseUsage parses cpuacct.usage of version 1.
func parseUsage(text []byte) (time.Duration, bool) {
	ns, rest, ok := digits(text)
	if !ok || len(rest) != 1 || rest[0] != '\n' || ns > math.MaxInt64 {
		return 0, false
	}
	return time.Duration(ns), true
}

// jiffy is the unit of times in /proc: 10 ms (USER_HZ = 100) on all architectures supported by Go, regardless of
// the kernel's tick rate.
const jiffy = 10 * time.Millisecond

// processStat contains fields of /proc/PID/stat.
type processStat struct {
	cpu   time.Duration // of all threads, including ended ones
	start uint64        // start time; distinguishes successive processes with the same PID
}

// parseProcess parses /proc/PID/stat. The second field is a name in parentheses that may contain any character, but
// the fields after it contain no parentheses.
func parseProcess(text []byte) (processStat, bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 || len(text) == 0 || text[len(text)-1] != '\n' {
		return processStat{}, false
	}
	const utime, stime, starttime = 14, 15, 22
	var values [starttime + 1]uint64
	field := 3
	for word := range bytes.FieldsSeq(text[end+1:]) {
		if field == utime || field == stime || field == starttime {
			value, rest, ok := digits(word)
			if !ok || len(rest) > 0 || value > math.MaxInt64 {
				return processStat{}, false
			}
			values[field] = value
		}
		if field++; field > starttime {
			cpu, ok := times(values[utime]+values[stime], jiffy)
			return processStat{cpu: cpu, start: values[starttime]}, ok
		}
	}
	return processStat{}, false
}

// nodeStat contains fields of /proc/stat.
type nodeStat struct {
	busy time.Duration
	cpus int
}

// parseStat parses /proc/stat. The busy time is the sum of user, nice, system, irq and softirq. Guest time is
// already part of user and nice, steal time was not used by this node, and iowait is idle time.
func parseStat(text []byte) (nodeStat, bool) {
	line, _, ok := bytes.Cut(text, []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte("cpu ")) {
		return nodeStat{}, false
	}
	var ticks uint64
	column := 0
	for word := range bytes.FieldsSeq(line[len("cpu "):]) { // user nice system idle iowait irq softirq
		value, after, ok := digits(word)
		if !ok || len(after) > 0 || value > math.MaxInt64/8 {
			return nodeStat{}, false
		}
		if column != 3 && column != 4 {
			ticks += value
		}
		if column++; column == 7 {
			break
		}
	}
	if column < 3 { // kernels before 2.6 have four columns
		return nodeStat{}, false
	}
	busy, ok := times(ticks, jiffy)
	return nodeStat{busy: busy, cpus: bytes.Count(text, []byte("\ncpu"))}, ok
}
