package access

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Member is a cluster that forwards its usage records to this controller, with the limits of accepted values.
type Member struct {
	Name     string       `json:"name"`
	Zone     string       `json:"zone"` // name of a local GridZone; empty for the default zone
	PUE      float64      `json:"pue"`  // 0 for the PUE of the zone
	Nodes    int          `json:"maxNodes"`
	MaxPower energy.Watts `json:"nodeMaxWatts"`
	Bookings int          `json:"bookingsPerMinute"`
}

// Members contains the clusters of a federation by name.
type Members map[string]Member

// Default and limit values of Member fields.
const (
	memberNodes    = 1000
	memberPower    = 2000
	memberBookings = 10_000
	minBookings    = 600 // per minute; must be at least the maximum of a single request
	maxPUE         = 5
)

// LoadMembers reads a file in this format:
//
//	clusters:
//	- name: alpha
//	  zone: de
//	  pue: 1.3
//	  maxNodes: 200
//	  nodeMaxWatts: 1200
//	  bookingsPerMinute: 4000
//
// The name of this cluster, own, must not be in the list. If path is empty, LoadMembers returns nil.
func LoadMembers(path, own string) (Members, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	var file struct {
		Clusters []Member `json:"clusters"`
	}
	if err == nil {
		err = yaml.UnmarshalStrict(data, &file)
	}
	all := Members{}
	for i := range file.Clusters {
		m := &file.Clusters[i]
		m.Nodes, m.MaxPower = cmp.Or(m.Nodes, memberNodes), cmp.Or(m.MaxPower, memberPower)
		m.Bookings = cmp.Or(m.Bookings, memberBookings)
		_, twice := all[m.Name]
		switch why := validation.IsDNS1123Label(m.Name); {
		case err != nil:
		case len(why) > 0:
			err = fmt.Errorf("cluster %d: name %q: %s", i+1, m.Name, why[0])
		case twice || m.Name == own:
			err = fmt.Errorf("cluster %q is a duplicate or the local cluster (--cluster)", m.Name)
		case m.PUE != 0 && !(m.PUE >= 1 && m.PUE <= maxPUE) || m.Nodes < 0 || !(m.MaxPower > 0) ||
			m.Bookings < minBookings:
			err = fmt.Errorf("cluster %q: want pue of 1 to %d, maxNodes and nodeMaxWatts above 0, "+
				"bookingsPerMinute of %d or more", m.Name, maxPUE, minBookings)
		}
		all[m.Name] = *m
	}
	if err != nil {
		return nil, fmt.Errorf("reading --members-file: %w", err)
	}
	return all, nil
}
