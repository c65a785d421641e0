package meter

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// zoneDir is a zone in the powercap tree.
type zoneDir struct {
	path     string
	control  string // control type
	top, sub int    // as in intel-rapl:top:sub; sub is -1 for top-level zones
	domain   energy.Domain
}

const (
	msrPrefix  = "intel-rapl" // also used for AMD
	mmioPrefix = "intel-rapl-mmio"
)

var zoneName = regexp.MustCompile(`^(` + msrPrefix + `|` + mmioPrefix + `):(\d{1,4})(?::(\d{1,4}))?$`)

// parseZone parses the directory name of a zone, e.g. "intel-rapl:0:1".
func parseZone(name string) (z zoneDir, ok bool) {
	parts := zoneName.FindStringSubmatch(name)
	if parts == nil {
		return z, false
	}
	z = zoneDir{control: parts[1], sub: -1}
	z.top, _ = smallNumber(parts[2])
	if parts[3] != "" {
		z.sub, _ = smallNumber(parts[3])
	}
	return z, true
}

// smallNumber parses a number of at most four digits.
func smallNumber(s string) (int, bool) {
	if len(s) == 0 || len(s) > 4 {
		return 0, false
	}
	v, err := parseUint([]byte(s))
	return int(v), err == nil && s[len(s)-1] != '\n'
}

// findZones finds the zones in the device tree, where zones are nested in their control types and parents, or in
// the class directory, which is flat. The result is sorted by control type (MSR before MMIO) and number.
func findZones(sys *calls, root string) ([]zoneDir, error) {
	found := map[string]zoneDir{}
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		names, err := list(dir)
		if err != nil || depth == 0 {
			return err
		}
		for _, name := range names {
			z, ok := parseZone(name)
			if _, seen := found[name]; !ok && name != msrPrefix && name != mmioPrefix || seen {
				continue
			}
			if ok {
				if len(found) == maxZones {
					return fmt.Errorf("%s has more than %d zones", root, maxZones)
				}
				z.path = filepath.Join(dir, name)
				found[name] = z
			}
			if err := walk(filepath.Join(dir, name), depth-1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(root, 4); err != nil {
		return nil, err
	}
	zones := slices.Collect(maps.Values(found))
	slices.SortFunc(zones, func(a, b zoneDir) int {
		return cmp.Or(cmp.Compare(a.control, b.control), cmp.Compare(a.top, b.top), cmp.Compare(a.sub, b.sub))
	})
	return nameZones(sys, zones), nil
}

// nameZones sets the domains of zones, and drops zones that are not energy domains.
func nameZones(sys *calls, zones []zoneDir) []zoneDir {
	type socket struct {
		control string
		top     int
	}
	parents := map[socket]string{} // names of top-level zones
	named := zones[:0]
	for _, z := range zones {
		name, err := readText(sys, filepath.Join(z.path, "name"))
		if err != nil {
			continue // the domain is unknown
		}
		key := socket{z.control, z.top}
		if z.sub < 0 {
			parents[key] = name
		}
		if d, ok := raplDomain(name, parents[key], z.top); ok {
			z.domain = d
			named = append(named, z)
		}
	}
	return named
}

// raplDomain returns the domain of a zone. The names of packages and psys may contain a number; other zones get the
// number of their package.
func raplDomain(name, parent string, top int) (energy.Domain, bool) {
	for _, k := range []energy.DomainKind{energy.Package, energy.Psys} {
		if rest, ok := strings.CutPrefix(name, k.String()); ok && socketName(rest) {
			return energy.Domain{Kind: k, Name: name}, rest != "" || k == energy.Psys
		}
	}
	socket := "-" + strconv.Itoa(top)
	if rest, ok := strings.CutPrefix(parent, energy.Package.String()); ok && rest != "" && socketName(rest) {
		socket = rest
	}
	k, ok := kindIn(name, energy.Core, energy.DRAM)
	return energy.Domain{Kind: k, Name: name + socket}, ok
}

// kindIn parses the kind of a domain, and returns ok = false if it is not between first and last.
func kindIn(name string, first, last energy.DomainKind) (k energy.DomainKind, ok bool) {
	err := k.UnmarshalText([]byte(name))
	return k, err == nil && k >= first && k <= last
}

// socketName reports whether text is a valid suffix of "package" in the name of a zone: "", "-0" or "-0-die-1".
var socketName = regexp.MustCompile(`^(?:-\d{1,4}(?:-die-\d{1,4})?)?$`).MatchString

// byDomain groups zones of the same domain in order of preference.
func byDomain(zones []zoneDir) [][]zoneDir {
	var groups [][]zoneDir
	for _, z := range zones {
		i := slices.IndexFunc(groups, func(same []zoneDir) bool { return same[0].domain == z.domain })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], z)
	}
	return groups
}
