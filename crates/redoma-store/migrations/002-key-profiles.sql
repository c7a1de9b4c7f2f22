-- The profile of those who come with a key, instead of the default one.
ALTER TABLE keys ADD COLUMN profile TEXT;
