package agent

import (
	"encoding/binary"
	"errors"
)

const stateVersion = 1

// appendState adds what a later process of this boot needs so that its counters go on where these stop: a section
// each, after its length, of the attributor, the host and the GPUs.
func (a *agent) appendState(into []byte) []byte {
	into = append(into, stateVersion)
	for _, section := range []func([]byte) []byte{
		a.attributor.AppendState, a.host.AppendState, a.gpus.appendState,
	} {
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
	if len(state) == 0 || state[0] != stateVersion {
		return errState
	}
	state = state[1:]
	for i, section := range []func([]byte) error{a.attributor.RestoreState, a.host.RestoreState, a.gpus.restore} {
		if i == 2 && len(state) == 0 {
			break // of an agent that did not meter GPUs
		}
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
	last := a.gpus.books.Readings(a.attributor.Readings(nil))
	for _, m := range a.meters {
		m.Resume(last)
	}
	return nil
}
