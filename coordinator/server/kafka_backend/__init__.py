"""The backend of a node whose state is in an existing Kafka. Imported only where `engine` names one."""
