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

// machineName returns the number and name of a virtual machine from the name of its libvirt group, e.g.
// "qemu-3-web", or "" for other groups.
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

// vmName removes libvirt's number from a machine name. libvirt truncates the whole name to 64 characters and
// removes some characters, so the result may be incomplete.
func vmName(machine string) string {
	rest, ok := strings.CutPrefix(machine, "qemu-")
	if !ok {
		return sanitise(machine, maxVMName, false)
	}
	if number, name, ok := strings.Cut(rest, "-"); ok && number != "" && strings.Trim(number, "0123456789") == "" &&
		name != "" {
		rest = name
	} else if strings.Trim(rest, "0123456789-") == "" {
		rest = machine // only a number
	}
	return sanitise(rest, maxVMName, false)
}

// unescape decodes systemd's escape sequences, e.g. \x2d for a dash. Truncated sequences are kept.
func unescape(s string) string {
	return escape.ReplaceAllStringFunc(s, func(code string) string {
		c, _ := strconv.ParseUint(code[2:], 16, 8) // always two hexadecimal digits
		return string([]byte{byte(c)})
	})
}

var escape = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// sanitise returns a name that is valid in labels, file names and log entries. If it has to change the name, it
// appends a hash, so that different names remain different.
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
	clean = strings.ToValidUTF8(clean[:min(len(clean), most-hashed)], "") // remove a truncated UTF-8 sequence
	return fmt.Sprintf("%s~%08x", clean, sum.Sum32())
}

// guestOf returns the name of the virtual machine in the command line of a QEMU process, in the format of
// /proc/PID/cmdline. If the machine has no name, guestOf returns its UUID, or "". It returns ok = false for other
// processes.
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

// nameOption parses the value of -name, e.g. "web" or "guest=web,debug-threads=on". A comma in a name is doubled.
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
