package agent

import (
	"encoding/binary"
	"errors"
)

// Versions of the state: without a section of GPUs, as former agents read it, and with one.
const (
	stateVersion    = 1
	stateVersionGPU = 2
)

// appendState adds what a later process of this boot needs so that its counters go on where these stop: a section
// each, after its length, of the attributor, the host and the GPUs, if they are metered.
func (a *agent) appendState(into []byte) []byte {
	sections := []func([]byte) []byte{a.attributor.AppendState, a.host.AppendState}
	version := byte(stateVersion)
	if a.gpus.meter != nil {
		sections, version = append(sections, a.gpus.attribution.AppendState), stateVersionGPU
	}
	into = append(into, version)
	for _, section := range sections {
		// The length goes before what is not known yet; four bytes are kept free for it.
		at := len(into)
		into = section(append(into, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(into[at:], uint32(len(into)-at-4))
	}
	return into
}

var errState = errors.New("the state is cut off, or of another version")

// restore takes over what appendState wrote; the meters go on from the readings in it. What former agents wrote behind
// it stands in the ledger of package guests too.
func (a *agent) restore(state []byte) error {
	if len(state) == 0 || state[0] != stateVersion && state[0] != stateVersionGPU {
		return errState
	}
	sections := []func([]byte) error{a.attributor.RestoreState, a.host.RestoreState}
	if state[0] == stateVersionGPU {
		sections = append(sections, a.gpus.attribution.RestoreState)
	}
	state = state[1:]
	for _, section := range sections {
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
	last := a.gpus.attribution.Readings(a.attributor.Readings(nil))
	for _, m := range a.meters {
		m.Resume(last)
	}
	return nil
}
