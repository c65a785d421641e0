package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/agent/guests"
	"github.com/kubenergy/kubenergy/agent/host"
	"github.com/kubenergy/kubenergy/energy"
)

const stateVersion = 1

// appendState adds what a later process of this boot needs so that its counters go on where these stop: three sections,
// each after its length, of the attributor, the host and the virtual machines.
func (a *agent) appendState(into []byte) []byte {
	into = append(into, stateVersion)
	for _, section := range []func([]byte) []byte{a.attributor.AppendState, a.host.AppendState, a.vms.appendState} {
		// The length goes before what is not known yet; four bytes are kept free for it.
		at := len(into)
		into = section(append(into, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(into[at:], uint32(len(into)-at-4))
	}
	return into
}

var errState = errors.New("the state is cut off, or of another version")

// restore takes over what appendState wrote; the meters go on from the readings in it.
func (a *agent) restore(state []byte) error {
	if len(state) == 0 || state[0] != stateVersion {
		return errState
	}
	state = state[1:]
	for _, section := range []func([]byte) error{a.attributor.RestoreState, a.host.RestoreState, a.vms.restore} {
		if len(state) < 4 {
			return errState
		}
		length := binary.LittleEndian.Uint32(state)
		if state = state[4:]; uint64(length) > uint64(len(state)) {
			return errState
		}
		if err := section(state[:length]); err != nil {
			return err
		}
		state = state[length:]
	}
	last := a.attributor.Readings(nil)
	for _, m := range a.meters {
		m.Resume(last)
	}
	return nil
}

// vmTotals is what each virtual machine used since it was seen first. Guests read it as a counter, which must not fall.
type vmTotals struct {
	list []guests.VMTotal // sorted by name
}

// add books the shares of virtual machines.
func (t *vmTotals) add(a *energy.Attribution) {
	for i := range a.Shares {
		name, ok := energy.VMOf(a.Shares[i].ID)
		if !ok {
			continue
		}
		at, found := t.find(name)
		if !found {
			t.list = slices.Insert(t.list, at, guests.VMTotal{Name: name})
		}
		vm := &t.list[at]
		vm.Total += a.Shares[i].Dynamic + a.Shares[i].Idle
		vm.Quality = min(a.Quality, energy.Derived)
	}
}

func (t *vmTotals) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.list, name, func(vm guests.VMTotal, name string) int {
		return strings.Compare(vm.Name, name)
	})
}

// keep drops machines that are gone, and begins new ones at 0.
func (t *vmTotals) keep(vms []host.VM) {
	t.list = slices.DeleteFunc(t.list, func(vm guests.VMTotal) bool {
		return !slices.ContainsFunc(vms, func(v host.VM) bool { return v.Name == vm.Name })
	})
	for i := range vms {
		if at, found := t.find(vms[i].Name); !found {
			t.list = slices.Insert(t.list, at, guests.VMTotal{Name: vms[i].Name})
		}
	}
}

func (t *vmTotals) appendState(into []byte) []byte {
	if len(t.list) == 0 {
		return into
	}
	text, err := json.Marshal(t.list)
	if err != nil {
		return into // of strings and numbers it cannot fail
	}
	return append(into, text...)
}

func (t *vmTotals) restore(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	if err := json.Unmarshal(state, &t.list); err != nil {
		return fmt.Errorf("reading the totals of virtual machines: %w", err)
	}
	if !slices.IsSortedFunc(t.list, func(a, b guests.VMTotal) int { return strings.Compare(a.Name, b.Name) }) {
		return errState
	}
	return nil
}
