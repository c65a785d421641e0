package live

import (
	"github.com/kubenergy/kubenergy/internal/energy"
)

// ownerKey identifies the owner of pods.
type ownerKey struct{ namespace, kind, name string }

// owner contains the statistics of the pods of an owner.
type owner struct {
	key   ownerKey
	power energy.Smoothed
	parts []*part
	gone  bool // removed from the map; pods must look up the owner again
}

// part contains the statistics of the containers with the same name.
type part struct {
	name  string
	power energy.Smoothed
}

// maxContainers limits the containers per pod and the container names per owner.
const maxContainers = 32

func (s *State) ownerOf(key ownerKey) *owner {
	o := s.owners[key]
	if o == nil {
		o = &owner{key: key}
		s.owners[key] = o
	}
	return o
}

// part returns the part with the given name, or nil if the limit is reached.
func (o *owner) part(name string) *part {
	for _, p := range o.parts {
		if p.name == name {
			return p
		}
	}
	if len(o.parts) >= maxContainers {
		return nil
	}
	p := &part{name: name}
	o.parts = append(o.parts, p)
	return p
}
