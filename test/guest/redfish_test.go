//go:build linux && amd64

package guest

import (
	"net/http"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

// systemUUID is the system UUID that the firmware of the guest reports.
const systemUUID = "5ca1ab1e-0000-4000-8000-00000000cafe"

// machine is the guest from the perspective of its management controller.
type machine struct {
	*guest.Machine
	mu    sync.Mutex
	asked []request
}

// request is a received reset request.
type request struct {
	kind string
	at   time.Time
}

// system returns the Redfish system of the guest. uuid may differ from the guest's own UUID.
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

// requests returns a copy of the reset requests received so far.
func (m *machine) requests() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]request(nil), m.asked...)
}

// when returns the time of the first reset request of the given kind, or the zero time.
func (m *machine) when(kind string) (at time.Time) {
	for _, r := range m.requests() {
		if r.kind == kind {
			return r.at
		}
	}
	return time.Time{}
}
