package parts

import (
	"context"

	"github.com/cellplane/cellplane/internal/bootstrap"
)

// grantRights grants the parts their rights.
func (p *Parts) grantRights(ctx context.Context) error {
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	for _, c := range p.engined() {
		if err := grantEngine(ctx, hub, c); err != nil {
			return err
		}
	}
	return bootstrap.GrantParts(ctx, hub)
}
