package agent

import (
	"encoding/binary"
	"errors"
)

// Versions of the state: without a GPU section, which older agents can read, and with one.
const (
	stateVersion    = 1
	stateVersionGPU = 2
)

// appendState appends the state that the next process of this boot needs to continue the counters. It consists of a
// length-prefixed section each for the attributor, the host and, if metered, the GPUs.
func (a *agent) appendState(into []byte) []byte {
	sections := []func([]byte) []byte{a.attributor.AppendState, a.host.AppendState}
	version := byte(stateVersion)
	if a.gpus.meter != nil {
		sections, version = append(sections, a.gpus.attribution.AppendState), stateVersionGPU
	}
	into = append(into, version)
	for _, section := range sections {
		// The length is not known yet. Reserve four bytes for it.
		at := len(into)
		into = section(append(into, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(into[at:], uint32(len(into)-at-4))
	}
	return into
}

var errState = errors.New("the state is truncated or has an unknown version")

// restore restores the state written by appendState and resumes the meters from its readings. It ignores trailing
// data that older agents wrote, which is also in the saved counters of package guests.
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
