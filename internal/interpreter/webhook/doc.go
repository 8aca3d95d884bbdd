// Package webhook interprets kinds by asking the web hooks of ResourceInterpreterWebhookConfigurations.
package webhook
