package federate

import "k8s.io/client-go/transport"

// Wrap lets a test see the requests to control planes.
func (c *Config) Wrap(wrapper transport.WrapperFunc) { c.wrap = wrapper }
