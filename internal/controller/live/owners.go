package live

import (
	"github.com/kubenergy/kubenergy/internal/energy"
)

// ownerKey names what pods are replicas or runs of.
type ownerKey struct{ namespace, kind, name string }

// owner is what is expected of a pod of an owner.
type owner struct {
	key   ownerKey
	power energy.Smoothed
	parts []*part
	gone  bool // forgotten: pods that still refer to it look for it again
}

// part is what is expected of one of its containers.
type part struct {
	name  string
	power energy.Smoothed
}

// maxContainers bounds what a pod can make us remember: containers of a pod, and of an owner by name.
const maxContainers = 32

func (s *State) ownerOf(key ownerKey) *owner {
	o := s.owners[key]
	if o == nil {
		o = &owner{key: key}
		s.owners[key] = o
	}
	return o
}

// part returns that of a name, nil where there are too many.
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
