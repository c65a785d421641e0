package intake

// PodNames contains the data of the index about a pod.
type PodNames struct {
	Namespace, Pod, Node string
	OwnerKind, Owner     string
	Parent               string // owner of the owner
	Team, Strategy       string
}

// Names returns the data of the index about a pod.
func (d *PodIndex) Names(podUID string) (PodNames, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	e := d.pods.get(podUID)
	if e == nil {
		return PodNames{}, false
	}
	a := d.account(e)
	return PodNames{
		Namespace: a.Namespace, Pod: e.name, Node: e.node.Value(), OwnerKind: a.OwnerKind, Owner: a.Owner,
		Parent: a.Parent, Team: a.Team, Strategy: a.Strategy,
	}, true
}
