package host

import (
	"bytes"
	"math"
	"time"
)

// The counters of the kernel, parsed by hand: they are read for each container each second. A number counts only with
// the line break behind it, so that half a number is none.

// digits reads the decimal number that text begins with, and returns what follows it.
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

// field finds the line "name number" in a flat keyed file.
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

// times returns n units of time, unless that is too much.
func times(n uint64, unit time.Duration) (time.Duration, bool) {
	if n > math.MaxInt64/uint64(unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// parseCPUStat reads cpu.stat of a control group of version 2.
func parseCPUStat(text []byte) (time.Duration, bool) {
	usec, ok := field(text, "usage_usec")
	value, fits := times(usec, time.Microsecond)
	return value, ok && fits
}

// parseRootCPUStat reads cpu.stat of the root of version 2. Before Linux 6.14 its usage_usec has the time in it that a
// hypervisor gave to others; user_usec and system_usec never had.
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

// parseUsage reads cpuacct.usage of version 1.
func parseUsage(text []byte) (time.Duration, bool) {
	ns, rest, ok := digits(text)
	if !ok || len(rest) != 1 || rest[0] != '\n' || ns > math.MaxInt64 {
		return 0, false
	}
	return time.Duration(ns), true
}

// A jiffy is what /proc counts in: 10 ms on every architecture that Go knows, whatever the kernel's own tick is.
const jiffy = 10 * time.Millisecond

// processStat is what /proc/PID/stat says of a process.
type processStat struct {
	cpu   time.Duration // of all its threads, ended ones too
	start uint64        // tells processes apart that have one PID after the other
}

// parseProcess reads /proc/PID/stat. The second field is a name that may hold anything, brackets and line breaks too,
// but nothing behind it holds a bracket.
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

// nodeStat is what /proc/stat says of the node.
type nodeStat struct {
	busy time.Duration
	cpus int
}

// parseStat reads /proc/stat. Busy are user, nice, system, irq and softirq: what guests used is in user and nice
// already, what was stolen was not used here, and waiting for a disk is idling.
func parseStat(text []byte) (nodeStat, bool) {
	line, rest, ok := bytes.Cut(text, []byte("\n"))
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
	if column < 3 { // kernels before 2.6 have four
		return nodeStat{}, false
	}
	var stat nodeStat
	if stat.busy, ok = times(ticks, jiffy); !ok {
		return nodeStat{}, false
	}
	for len(rest) > 3 && string(rest[:3]) == "cpu" {
		stat.cpus++
		if _, rest, ok = bytes.Cut(rest, []byte("\n")); !ok {
			break
		}
	}
	return stat, true
}
