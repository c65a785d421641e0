package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// role is the kind of a control group or node.
type role uint8

const (
	other     role = iota // a service or session, accounted to the system
	system                // the root node
	slice                 // contains consumers: all pods, a QoS class, or virtual machines
	pod                   //
	container             //
	vm                    //
	process               // a virtual machine without its own group
	group                 // matches a pattern of Options.Groups
	ignored               // inside a consumer, and accounted to it
)

// Maximum lengths of names. Groups with longer names are not separate consumers.
const (
	maxUID    = 64
	maxVMName = 128
	maxGroup  = 512
)

// below returns the role of the group name inside the group base, and the key of its consumer: the UID of a pod, the
// ID of a container, or the name and number of a virtual machine. in is the role of base, where slice means a group of
// pods.
//
// It supports the layouts of both cgroup drivers of the kubelet, below any parent groups:
//
//	kubepods/burstable/pod<uid>/<container>
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// It also supports the layouts of libvirt:
//
//	machine/qemu-3-name.libvirt-qemu
//	machine.slice/machine-qemu\x2d3\x2dname.scope
func below(in role, base, name string) (role, string) {
	switch {
	case in == pod:
		if id := containerID(name); id != "" {
			return container, id
		}
		return ignored, ""
	case in == container || in == vm || in == ignored:
		return ignored, ""
	case in == slice:
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

// isKubepods reports whether name is the group of all pods. k3s, kind and --cgroup-root nest it in other groups.
func isKubepods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// isClass reports whether name is the group of a QoS class.
func isClass(name string) bool {
	return slices.Contains([]string{"burstable", "besteffort", "guaranteed"}, name) ||
		strings.HasSuffix(name, "kubepods-burstable.slice") || strings.HasSuffix(name, "kubepods-besteffort.slice")
}

// podUID returns the UID of a pod, or "" if name is not the group of a pod. The systemd driver replaces dashes in
// the UID with underscores, because systemd uses dashes to separate levels.
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

// containerID returns the ID of a container, or "" for other groups in a pod, such as CRI-O's monitors and
// init.scope.
func containerID(name string) string {
	if parts := containerName.FindStringSubmatch(name); parts != nil {
		return parts[1] + parts[2]
	}
	return ""
}

// containerName matches a container ID, optionally in a scope with the prefix of a container runtime.
var containerName = regexp.MustCompile(
	`^(?:([0-9a-f]{12,128})|(?:cri-containerd|containerd|crio|docker|libpod|cri-o)-([0-9a-f]{12,128})(?:\.scope)?)$`)

// word matches valid pod UIDs, except that names of dots only must be rejected separately because they are relative
// paths.
var word = regexp.MustCompile(`^[\w.-]+$`)

// glob is a path pattern, split into elements.
type glob []string

func parseGlobs(patterns []string) ([]glob, error) {
	var globs []glob
	for _, p := range patterns {
		elements := strings.Split(strings.Trim(p, "/"), "/")
		for _, e := range elements {
			if _, err := path.Match(e, ""); err != nil || e == "" || e == "." || e == ".." {
				return nil, fmt.Errorf("invalid cgroup pattern %q: invalid element %q", p, e)
			}
		}
		globs = append(globs, elements)
	}
	return globs, nil
}

// match reports whether the path of a group matches a pattern, and whether groups inside it may match.
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

// placeOf returns the outermost pod or virtual machine in a path as listed in /proc/PID/cgroup.
func placeOf(rel string) (role, string) {
	in, base := other, ""
	for name := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		next, key := below(in, base, name)
		if next == pod || next == vm {
			return next, key
		}
		in, base = next, name
	}
	return other, ""
}
