//go:build linux && amd64

package guest

import (
	"net/http"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

// systemUUID is what the guest's firmware says.
const systemUUID = "5ca1ab1e-0000-4000-8000-00000000cafe"

// machine is the guest as its management controller has it.
type machine struct {
	*guest.Machine
	mu    sync.Mutex
	asked []request
}

// request is a reset that was asked for.
type request struct {
	kind string
	at   time.Time
}

// system is the guest in Redfish, with a UUID that need not be its own.
func (m *machine) system(uuid string) lab.System {
	return lab.System{UUID: uuid, State: func() string {
		if m.On() != nil {
			return "On"
		}
		return "Off"
	}, Reset: m.reset}
}

func (m *machine) reset(kind string) (status int) {
	m.mu.Lock()
	m.asked = append(m.asked, request{kind, time.Now()})
	m.mu.Unlock()
	var err error
	switch on := m.On(); {
	case kind == "On" && on == nil:
		err = m.Start()
	case kind == "GracefulShutdown" && on != nil:
		err = m.PressPowerButton()
	case kind != "On" && kind != "GracefulShutdown":
		return http.StatusBadRequest
	}
	if err != nil {
		return http.StatusInternalServerError
	}
	return http.StatusNoContent
}

// requests returns the resets that were asked for so far.
func (m *machine) requests() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]request(nil), m.asked...)
}

// when returns when a reset was first asked for.
func (m *machine) when(kind string) (at time.Time) {
	for _, r := range m.requests() {
		if r.kind == kind {
			return r.at
		}
	}
	return time.Time{}
}
