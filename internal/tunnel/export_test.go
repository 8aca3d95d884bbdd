package tunnel

import "time"

// WithPatience sets how long an agent may take to accept a connection.
func (t *Tunnels) WithPatience(within time.Duration) { t.patience = within }
