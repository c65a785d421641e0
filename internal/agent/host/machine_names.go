package host

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// machineName returns libvirt's name of a virtual machine's group, its number and its name, as "qemu-3-web"; or
// nothing.
func machineName(name string) string {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		machine, ok := strings.CutPrefix(scope, "machine-")
		if machine = unescape(machine); ok && strings.HasPrefix(machine, "qemu-") && machine != "qemu-" {
			return machine
		}
		return ""
	}
	if machine, ok := strings.CutSuffix(name, ".libvirt-qemu"); ok {
		return machine
	}
	return ""
}

// vmName takes libvirt's number off. libvirt cuts the whole to 64 characters and drops some, so that long names may be
// cut ones, even to nothing.
func vmName(machine string) string {
	rest, ok := strings.CutPrefix(machine, "qemu-")
	if !ok {
		return sanitise(machine, maxVMName, false)
	}
	if number, name, ok := strings.Cut(rest, "-"); ok && number != "" && strings.Trim(number, "0123456789") == "" &&
		name != "" {
		rest = name
	} else if strings.Trim(rest, "0123456789-") == "" {
		rest = machine // there is a number only
	}
	return sanitise(rest, maxVMName, false)
}

// unescape undoes systemd's escapes, \x2d for a dash. What was cut in the middle of one stays as it is.
func unescape(s string) string {
	return escape.ReplaceAllStringFunc(s, func(code string) string {
		c, _ := strconv.ParseUint(code[2:], 16, 8) // two hexadecimal digits
		return string([]byte{byte(c)})
	})
}

var escape = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// sanitise makes a name that fits into a label, a file name and a log line. What had to be changed gets a hash behind
// it, so that different names stay different.
func sanitise(name string, most int, slashes bool) string {
	clean := strings.Map(func(r rune) rune {
		if r == '/' && !slashes || r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, name)
	if clean == "." || clean == ".." {
		clean = "_"
	}
	if clean == name && len(name) <= most {
		return name
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	const hashed = 9
	clean = strings.ToValidUTF8(clean[:min(len(clean), most-hashed)], "") // without half a letter
	return fmt.Sprintf("%s~%08x", clean, sum.Sum32())
}

// guestOf returns what the command line of a QEMU process, as /proc/PID/cmdline has it, calls its machine: its name, or
// its UUID; empty if it has neither. It is not ok for other processes.
func guestOf(cmdline []byte) (name string, ok bool) {
	program, _, _ := bytes.Cut(cmdline, []byte{0})
	if !isQEMU(string(program[bytes.LastIndexByte(program, '/')+1:])) {
		return "", false
	}
	name, _ = option(cmdline, "name")
	if name = nameOption(name); name == "" {
		if name, _ = option(cmdline, "uuid"); name == "" {
			return "", true
		}
	}
	return sanitise(name, maxVMName, false), true
}

// option returns the last value of an option in a command line.
func option(cmdline []byte, name string) (value string, ok bool) {
	arguments := strings.Split(string(cmdline), "\x00")
	for i := 1; i < len(arguments)-1; i++ {
		if a := arguments[i]; a == "-"+name || a == "--"+name {
			i++
			value, ok = arguments[i], true
		}
	}
	return value, ok
}

func isQEMU(program string) bool {
	return slices.Contains([]string{"qemu", "qemu-kvm", "kvm"}, program) || strings.HasPrefix(program, "qemu-system-")
}

// nameOption reads the value of -name: "web", or "guest=web,debug-threads=on". A comma inside a name is doubled.
func nameOption(value string) string {
	const hidden = "\x00"
	value = strings.ReplaceAll(value, ",,", hidden)
	for i, part := range strings.Split(value, ",") {
		key, v, isPair := strings.Cut(part, "=")
		switch {
		case isPair && key == "guest":
			return strings.ReplaceAll(v, hidden, ",")
		case i == 0 && (!isPair || key != "process" && key != "debug-threads"):
			return strings.ReplaceAll(part, hidden, ",")
		}
	}
	return ""
}
