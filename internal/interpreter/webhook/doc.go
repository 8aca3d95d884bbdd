// Package webhook interprets kinds with the webhooks of ResourceInterpreterWebhookConfigurations.
package webhook
