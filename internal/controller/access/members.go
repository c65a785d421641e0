package access

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Member is a cluster that forwards what it books, and what it is believed at most.
type Member struct {
	Name     string       `json:"name"`
	Zone     string       `json:"zone"` // a GridZone of ours; "": the default one
	PUE      float64      `json:"pue"`  // 0: that of the zone
	Nodes    int          `json:"maxNodes"`
	MaxPower energy.Watts `json:"nodeMaxWatts"`
	Bookings int          `json:"bookingsPerMinute"`
}

// Members are the clusters of a federation, by name.
type Members map[string]Member

// What a member is believed where the file does not say.
const (
	memberNodes    = 1000
	memberPower    = 2000
	memberBookings = 10_000
	minBookings    = 600 // in a minute: fewer than a request holds could never be sent
	maxPUE         = 5
)

// LoadMembers reads a file such as
//
//	clusters:
//	- name: alpha
//	  zone: de
//	  pue: 1.3
//	  maxNodes: 200
//	  nodeMaxWatts: 1200
//	  bookingsPerMinute: 4000
//
// own is the name of this cluster.
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
			err = fmt.Errorf("cluster %q is there twice, or is this one (--cluster)", m.Name)
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
