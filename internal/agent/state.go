package agent

import (
	"errors"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

const stateVersion = 1

// appendState appends the state that the next process of this boot needs to continue the counters. It consists of the
// version and a section each for the attributor, the host and the GPUs.
func (a *agent) appendState(into []byte) []byte {
	c := codec.Writer(into)
	c.Version(stateVersion)
	for _, section := range []func([]byte) []byte{
		a.attributor.AppendState, a.host.AppendState, a.gpus.attribution.AppendState,
	} {
		a.section = section(a.section[:0])
		c.Bytes(&a.section)
	}
	return c.Data()
}

var errState = errors.New("the state is damaged or has an unknown version")

// restore restores the state written by appendState and resumes the meters from its readings.
func (a *agent) restore(state []byte) error {
	c := codec.Reader(state)
	c.Version(stateVersion)
	for _, section := range []func([]byte) error{
		a.attributor.RestoreState, a.host.RestoreState, a.gpus.attribution.RestoreState,
	} {
		var text []byte
		if c.Bytes(&text); c.Failed() {
			return errState
		}
		if err := section(text); err != nil {
			return err
		}
	}
	last := a.gpus.attribution.Readings(a.attributor.Readings(nil))
	for _, m := range a.meters {
		m.Resume(last)
	}
	return nil
}
