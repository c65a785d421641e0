package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A role is what a directory of a control group stands for.
type role uint8

const (
	other     role = iota // a service, a session: part of the system
	system                // the whole node
	slice                 // a group that holds consumers: all pods, the pods of a class, the machines
	pod                   //
	container             //
	vm                    //
	process               // a machine that is known by its process only
	group                 // what a pattern of the options matches
	ignored               // inside of a consumer, and part of it
)

// Limits of what is taken for a name. Longer ones are not consumers of their own.
const (
	maxUID    = 64
	maxVMName = 128
	maxGroup  = 512
)

// below says what the group name is inside a group called base of role in, and what its consumer is called: the UID
// of a pod, the ID of a container, the name of a machine with its number.
//
// These are the layouts of the kubelet's two drivers, with any parent groups around them:
//
//	kubepods/burstable/pod<uid>/<container>
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// and libvirt's:
//
//	machine/qemu-3-name.libvirt-qemu
//	machine.slice/machine-qemu\x2d3\x2dname.scope
func below(in role, inPods bool, base, name string) (role, string) {
	switch {
	case in == pod:
		if id := containerID(name); id != "" {
			return container, id
		}
		return ignored, ""
	case in == container || in == vm || in == ignored:
		return ignored, ""
	case inPods:
		if isClass(name) {
			return slice, ""
		}
		if uid := podUID(base, name); uid != "" {
			return pod, uid
		}
		return ignored, ""
	case isKubepods(name):
		return slice, ""
	}
	if machine := machineName(name); machine != "" {
		return vm, machine
	}
	return other, ""
}

// isKubepods tells the group of all pods; k3s, kind and --cgroup-root put others around it.
func isKubepods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// isClass tells the groups of the pods of one class of quality of service.
func isClass(name string) bool {
	return slices.Contains([]string{"burstable", "besteffort", "guaranteed"}, name) ||
		strings.HasSuffix(name, "kubepods-burstable.slice") || strings.HasSuffix(name, "kubepods-besteffort.slice")
}

// podUID returns the UID of a pod, or nothing. systemd takes dashes for levels, so the kubelet writes underscores.
func podUID(base, name string) string {
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok || strings.HasSuffix(name, ".slice") {
		uid, ok = strings.CutPrefix(name, strings.TrimSuffix(base, ".slice")+"-pod")
		if !ok {
			return ""
		}
		if uid, ok = strings.CutSuffix(uid, ".slice"); !ok {
			return ""
		}
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	if len(uid) > maxUID || !word.MatchString(uid) || strings.Trim(uid, ".") == "" {
		return ""
	}
	return uid
}

// containerID returns the ID of a container, or nothing for what else a pod holds: CRI-O's monitors, init.scope.
func containerID(name string) string {
	if parts := containerName.FindStringSubmatch(name); parts != nil {
		return parts[1] + parts[2]
	}
	return ""
}

// containerName is an ID, or a scope whose name begins with that of a runtime.
var containerName = regexp.MustCompile(
	`^(?:([0-9a-f]{12,128})|(?:cri-containerd|containerd|crio|docker|libpod|cri-o)-([0-9a-f]{12,128})(?:\.scope)?)$`)

// word is of letters, digits, dots and dashes. One of dots alone would be a way to another folder.
var word = regexp.MustCompile(`^[\w.-]+$`)

// A glob is a pattern of paths, element by element.
type glob []string

func parseGlobs(patterns []string) ([]glob, error) {
	var globs []glob
	for _, p := range patterns {
		elements := strings.Split(strings.Trim(p, "/"), "/")
		for _, e := range elements {
			if _, err := path.Match(e, ""); err != nil || e == "" || e == "." || e == ".." {
				return nil, fmt.Errorf("pattern of control groups %q: %q is no pattern of a name", p, e)
			}
		}
		globs = append(globs, elements)
	}
	return globs, nil
}

// match reports whether the path of a group, element by element, is what a pattern means, and if groups inside it may
// be.
func match(globs []glob, rel string) (full, within bool) {
	depth := strings.Count(rel, "/") + 1
	for _, g := range globs {
		if depth > len(g) {
			continue
		}
		matches, _ := path.Match(strings.Join(g[:depth], "/"), rel)
		full = full || matches && depth == len(g)
		within = within || matches && depth < len(g)
	}
	return full, within
}

// placeOf follows a path from the root of a hierarchy, as /proc/PID/cgroup shows it, to the outermost pod or machine.
func placeOf(rel string) (role, string) {
	in, inPods, base := other, false, ""
	for name := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		next, key := below(in, inPods, base, name)
		if next == pod || next == vm {
			return next, key
		}
		inPods = next == slice
		in, base = next, name
	}
	return other, ""
}
