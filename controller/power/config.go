package power

// The kinds of switches.
const (
	KindRedfish = "redfish"
	KindWebhook = "webhook"
)

// Machine binds a node to what switches its machine. Only those who configure the cluster write it.
type Machine struct {
	Node        string `json:"node"`
	UUID        string `json:"uuid"` // of the system, as its firmware and the node's status say it
	Kind        string `json:"kind"` // redfish or webhook
	URL         string `json:"url"`  // redfish: scheme and host; webhook: all of it
	System      string `json:"system,omitempty"` // path of the system, of redfish; "": the only one
	Username    string `json:"username,omitempty"`
	PasswordKey string `json:"passwordKey,omitempty"` // key in the Secret: the password, or what signs for a webhook
	Auth        string `json:"auth,omitempty"`        // of redfish: basic, by default, or session
	CAFile      string `json:"caFile,omitempty"`      // certificates that verify the server, in PEM
}
